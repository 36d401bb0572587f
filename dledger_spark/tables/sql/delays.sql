-- Each delayed message: when it was due, and when it was delivered, recalled or dropped with its
-- topic. RocketMQ: rocketmq_delay_message_latency.
with events as (
    select
        e.raft_group,
        e.position,
        min(case when e.event = 'waits' then e.index end) as begin_index,
        max(e.due_time) as due_time,
        min(case when e.event in ('delivered', 'dropped') then e.index end) as end_index
    from delay_events e
    group by e.raft_group, e.position
)
select
    v.raft_group,
    v.position,
    coalesce(m.properties['REAL_TOPIC'], d.topic) as topic,
    coalesce(m.unique_key, d.unique_key) as unique_key,
    m.store_time as begin_time,
    v.due_time,
    coalesce(e.event, 'waiting') as outcome,
    coalesce(d.store_time, e.time) as end_time,
    case
        when e.event = 'delivered'
        then unix_millis(coalesce(d.store_time, e.time)) - unix_millis(v.due_time)
    end as late_ms
from events v
left join messages m
    on m.index = v.begin_index and m.physical_offset = v.position
    and m.raft_group is not distinct from v.raft_group
left join delay_events e
    on e.index = v.end_index and e.position = v.position and e.event in ('delivered', 'dropped')
    and e.raft_group is not distinct from v.raft_group
left join messages d
    on d.index = e.index and e.event = 'delivered'
    and d.raft_group is not distinct from v.raft_group
