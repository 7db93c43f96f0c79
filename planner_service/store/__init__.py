"""Everything that speaks SQL: tables, engines, migrations and the repositories."""
