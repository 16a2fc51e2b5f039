"""A result on one page of HTML, for people who were not there: `Result.report`."""
