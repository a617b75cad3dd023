"""Programs that run releases of clients: processes of their own, which import nothing of Klamm."""
