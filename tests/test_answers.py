"""What the pages of answers print is what comes out, and their prose names no other figures."""

import pytest

from tests.pages import PAGES, Answer, answers, printed, read, refreshed, sections, unsupported

ANSWERS = [(page, answer) for page in PAGES for answer in answers(read(page))]


@pytest.mark.parametrize(
    ("page", "answer"), ANSWERS, ids=[f"{page}-{index}" for index, (page, _) in enumerate(ANSWERS)]
)
def test_the_answer_comes_out_as_it_stands_there(page: str, answer: Answer) -> None:
    result = printed(answer.language, answer.code)
    assert result == answer.shown, f"{page}, '{answer.section}': write it anew with `make docs`"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_or_commands_has_its_answer(page: str) -> None:
    text = read(page)
    blocks = ("\n```python\n", "\n```bash\n", "\n<!-- python\n")
    assert len(answers(text)) == sum(map(text.count, blocks)) > 0


@pytest.mark.parametrize(
    ("heading", "body"),
    [section for section in sections(read("docs/questions.md")) if section[0]],
    ids=lambda value: value if "\n" not in value else "",
)
def test_prose_names_only_figures_that_the_blocks_show(heading: str, body: str) -> None:
    assert unsupported(body) == []


def test_a_stale_answer_and_an_invented_figure_are_noticed() -> None:
    page = (
        "# A\n\n## B\n\nIt is 0.42, or 7 %, see arXiv 2211.17192.\n\n"
        "```python\nprint(417 / 1000)\n```\n\n```text\n0.5\n```\n"
    )
    (answer,) = answers(page)
    assert printed(answer.language, answer.code) == "0.417\n" != answer.shown
    assert refreshed(page) == page.replace("\n0.5\n", "\n0.417\n")
    assert [unsupported(body) for _, body in sections(refreshed(page))][1] == ["7"]
    assert [unsupported(body) for _, body in sections(page)][1] == ["0.42", "7"]


def test_the_answer_of_a_hidden_block_is_markdown() -> None:
    page = "# A\n\n## B\n\n<!-- python\nprint('| a |')\n-->\n\n| old |\n\n<!-- end -->\n"
    assert answers(page) == [Answer("B", "python", "print('| a |')\n", "| old |\n")]
    assert refreshed(page) == page.replace("old", "a")
    assert refreshed(refreshed(page)) == refreshed(page)
