"""`python -m decodesim`, and the installed script `decodesim`."""

from experiments.cli import main

if __name__ == "__main__":
    main()
