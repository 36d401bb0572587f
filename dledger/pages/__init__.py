"""Pages that a person reads in a browser: HTML with plain SVG, built element by element.

Such a page has some hundred kilobytes, opens without a network and in every browser, runs no script
and needs nothing besides the standard library. A library that draws in the browser would add
megabytes of JavaScript to each page.
"""
