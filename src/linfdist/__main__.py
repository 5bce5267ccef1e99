"""`python -m linfdist` is the `linfdist` command."""

from linfdist.cli import main

if __name__ == "__main__":
    main()
