"""Work on the folders of members at rest: copies, and beginning again without a quorum."""
