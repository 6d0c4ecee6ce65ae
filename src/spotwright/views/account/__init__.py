"""The account of a run: node time and money by attempt and pool, wasted work, and the savings by spot."""
