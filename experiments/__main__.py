"""`python -m experiments` is `decodesim`."""

from experiments.cli import main

if __name__ == "__main__":
    main()
