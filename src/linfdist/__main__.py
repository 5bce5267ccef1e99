"""`python -m linfdist` is the `linfdist` command."""

from linfdist.cli import app

if __name__ == "__main__":
    app(prog_name="linfdist")
