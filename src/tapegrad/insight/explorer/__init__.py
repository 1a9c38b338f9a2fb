"""A derived function as one page: its lines, tape, plan and source side by side, with links between
their lines; its passes, graph, memory and speed."""
