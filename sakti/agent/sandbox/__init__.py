"""Keep the commands of the model inside a boundary that the operating system enforces.

`boundary` computes the paths, with `repositories` and `masks`; `sandbox` starts commands inside it.
Means: `bwrap`, or `landlock`, `restrict` and `seccomp`, or `seatbelt`; `probe` tests which of them work here.
Network: `proxy` and `relay` connect, `shared_network` joins the commands of a session.
`environment` chooses variables and configures git; `aside` sets protected files aside; `failures` names causes.
"""
