-- Each transaction, by the position of its half message: how it ended, after how many checks, and
-- how long that took. One that was given up and resumed has a row for each.
with events as (
    select
        e.raft_group,
        e.position,
        min(case when e.event in ('prepared', 'resumed') then e.index end) as begin_index,
        max(e.producer_group) as producer_group,
        count(*) filter (where e.event = 'checked') as checks,
        min(case when e.event in ('committed', 'rolled back', 'given up') then e.index end)
            as end_index
    from transaction_events e
    group by e.raft_group, e.position
)
select
    v.raft_group,
    v.position,
    v.producer_group,
    m.properties['REAL_TOPIC'] as topic,
    m.unique_key,
    m.store_time as begin_time,
    v.checks,
    coalesce(e.event, 'open') as outcome,
    e.time as end_time,
    unix_millis(e.time) - unix_millis(m.store_time) as resolved_ms
from events v
left join messages m
    on m.index = v.begin_index and m.physical_offset = v.position
    and m.raft_group is not distinct from v.raft_group
left join transaction_events e
    on e.index = v.end_index and e.position = v.position
    and e.event in ('committed', 'rolled back', 'given up')
    and e.raft_group is not distinct from v.raft_group
-- A check of a transaction that the log does not have says nothing.
where v.begin_index is not null or v.end_index is not null
