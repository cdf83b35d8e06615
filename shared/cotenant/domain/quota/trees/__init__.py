"""Runtime quotas of all trees, kept current as quotas, nodes and pods change: what quota-tree publishes and the scheduler
decides on.

    declared      the quotas by name, from their objects          terminating   from when on an ending pod does not count
    demands       what pods request and hold, by quota            node_totals   what the nodes offer
    hierarchy     one valid tree per tree id                      totals        the total of each tree
    share         one resource among siblings                     scale_min     mins that do not fit
    splits        the same among few, one by one                  line          one resource of a family, kept current
    family        the children of one quota                       tree, forest  all of one tree, all trees

The modules above are a fold: the same facts give the same runtimes, in whatever order they came.
"""
