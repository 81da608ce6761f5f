"""Pictures for papers and READMEs, each from one call: panels, curves, maps."""
