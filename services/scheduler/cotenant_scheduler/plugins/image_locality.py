"""Image locality: a node that has a pod's images need not pull them.

Inputs: images and their sizes in the nodes' status, the images of the pod's containers and init containers. Score: the
sum over containers of size * (nodes that have the image / all nodes), each cut off to an integer; clamped to 23 MB .. 1000 MB
per container, and scaled from there to 0..100. A name without a tag means `:latest`. Source: kube-scheduler ImageLocality,
default weight 1.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import MAX_SCORE, Normalise
from cotenant_scheduler.state.columns import IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

MEBIBYTE = 1 << 20
LEAST = 23 * MEBIBYTE
MOST_PER_CONTAINER = 1000 * MEBIBYTE


class ImageLocality:
    """Score."""

    name = "ImageLocality"
    static = True
    in_columns = True
    weight = 1
    normalise = Normalise.PLAIN

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        sums = np.zeros(nodes.size, dtype=np.int64)
        present = [holders for image in shape.images if (holders := nodes.images.get(image))]
        if not present:
            return sums[rows]
        for holders in present:
            spread = float(len(holders)) / float(nodes.count)
            for row, size in holders.items():
                sums[row] += int(float(size) * spread)
        most = MOST_PER_CONTAINER * len(shape.images)
        scores: IntArray = MAX_SCORE * (np.clip(sums, LEAST, most) - LEAST) // (most - LEAST)
        return scores[rows]
