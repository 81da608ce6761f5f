from burstmamba.cli import main

main()
