"""Keep the commands of the model inside a boundary that the operating system enforces.

`boundary` computes the paths; `sandbox` starts commands inside it, after a self-test.
`backends` express it for bubblewrap, Landlock (with `restrict`) and sandbox-exec.
Network: `proxy` and `relay` connect, `shared_network` joins the commands of a session.
`environment` chooses variables and configures git; `quarantine` sets protected files aside.
"""
