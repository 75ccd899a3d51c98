"""`python -m context_compactor` is `compactor`, for where the script is not installed."""

from context_compactor.start import main

main()
