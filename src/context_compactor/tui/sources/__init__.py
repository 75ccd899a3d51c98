"""Where the sessions on the screens come from: a store on this machine, or a server."""
