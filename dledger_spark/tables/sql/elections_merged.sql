-- The table of elections from its rows so far and from those of new entries alone. A leader with a
-- colon is an address; the identifiers of members have none.
with rows_of_terms as (
    select o.* from old_elections o
    union all
    select f.* from fresh f
),
merged as (
    select
        r.raft_group,
        r.term,
        coalesce(max(case when r.leader not like '%:%' then r.leader end), max(r.leader)) as leader,
        min(r.first_index) as first_index,
        max(r.last_index) as last_index,
        cast(sum(r.entries) as bigint) as entries,
        cast(sum(r.messages) as bigint) as messages,
        min(r.first_time) as first_time,
        max(r.last_time) as last_time
    from rows_of_terms r
    group by r.raft_group, r.term
)
select
    m.*,
    unix_millis(m.first_time) - unix_millis(
        max(m.last_time) over (
            partition by m.raft_group
            order by m.term
            rows between unbounded preceding and 1 preceding
        )
    ) as gap_ms
from merged m
