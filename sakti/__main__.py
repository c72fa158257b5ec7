from sakti.cli import main

main()
