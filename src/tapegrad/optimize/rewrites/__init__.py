"""The rewrites that `simplify` applies: functions `rewrite(s, p, xs, shape)`. See `simplify`."""
