"""A run of chaos as one page that a person reads: verdict, faults, latency, gaps, the failing part.

Pictures are plain SVG, built element by element: a page of a whole run has some hundred kilobytes,
opens without a network and in every browser, and needs nothing besides the standard library.
Libraries that draw in the browser would add five megabytes of JavaScript to each page.
"""
