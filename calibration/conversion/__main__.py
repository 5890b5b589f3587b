"""`python -m calibration.conversion FILE… --out FOLDER`: writes cases with their explicit fields."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from calibration.conversion.convert import converted_document


def main() -> int:
    """Convert files; a file that exists is not replaced."""
    parser = argparse.ArgumentParser(prog="python -m calibration.conversion", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the converted files")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.files:
        target = arguments.out / path.name
        try:
            document = converted_document(json.loads(path.read_text(encoding="utf-8-sig")))
            with target.open("x", encoding="utf-8") as stream:
                json.dump(document, stream, indent=1, ensure_ascii=False)
        except (OSError, ValueError, AttributeError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
