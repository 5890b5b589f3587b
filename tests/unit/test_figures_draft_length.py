"""The picture of the best draft length follows the closed form."""

from dashboards.figures.draft_length import FIGURE, TOKENS, ClosedForm, speedup_title


def test_the_marked_length_has_the_largest_speedup_of_its_curve() -> None:
    table = FIGURE.prepare(ClosedForm())
    for cost in ClosedForm().cost_ratios:
        for alpha in ClosedForm().alphas:
            curve = table.where(curve=speedup_title(cost), alpha=alpha)
            (best,) = curve.where(best=True)["value"]
            assert best == max(curve["value"])
            assert curve["value"][0] == 1.0


def test_tokens_per_round_approach_their_limit() -> None:
    table = FIGURE.prepare(ClosedForm(alphas=(0.5,), longest=20)).where(curve=TOKENS)
    assert table["value"][0] == 1.0
    assert abs(table["value"][-1] - 2.0) < 1e-5


def test_each_curve_is_a_panel_with_a_point_for_each_acceptance() -> None:
    table = FIGURE.prepare(ClosedForm())
    pictures = FIGURE.pictures(table)
    assert next(title for title, _ in pictures) == TOKENS
    drawn = FIGURE.draw(pictures[1][1])
    points = [trace for trace in drawn.data if trace.mode == "markers+text"]
    assert len(points) == len(ClosedForm().alphas)
