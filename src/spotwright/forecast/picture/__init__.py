"""Draws a forecast: one list of shapes, written as SVG by us or as PNG by Pillow."""
