"""A derived function as one page: its lines, tape, plan and source side by side, each line linked
to those of the others; its passes, graph, memory and speed."""
