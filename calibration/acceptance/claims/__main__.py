"""`python -m calibration.acceptance.claims [FILE]` writes docs/claims.md."""

from __future__ import annotations

import sys
from pathlib import Path

from calibration.acceptance.claims.page import all_claims, claims_page


def main() -> None:
    """Test all claims and write the page."""
    path = Path(sys.argv[1]) if sys.argv[1:] else Path("docs/claims.md")
    path.write_text(claims_page(all_claims()), encoding="utf-8")


if __name__ == "__main__":
    main()
