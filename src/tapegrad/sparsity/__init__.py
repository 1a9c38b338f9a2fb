"""Which elements depend on which: structures of Jacobians and Hessians, and their colours."""
