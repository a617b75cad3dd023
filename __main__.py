"""`python -m klamm` is the command `klamm`."""

from klamm.cli.start import main

main()
