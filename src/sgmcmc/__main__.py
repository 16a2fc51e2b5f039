"""`python -m sgmcmc` is the command `sgmcmc`."""

from sgmcmc.cli import main

if __name__ == "__main__":
    main()
