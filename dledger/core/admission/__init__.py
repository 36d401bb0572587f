"""Admission to voting of members whose disk may have lost promises."""
