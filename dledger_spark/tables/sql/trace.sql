-- What happened to a message, by its unique key: each time it was stored (its copies for delays,
-- retries, transactions and dead letters are stored as well), how its transaction and its delay
-- ended, and each group's pops. A message that is sent back waits until `due_time`; then it is
-- delivered again. A copy of a dead letter is redriven. When a group's progress passed it is in the
-- table of latencies, and by offset in consumer_progress.
with delays as (
    select e.raft_group, e.index, e.event, e.due_time
    from delay_events e
    where e.event in ('waits', 'delivered', 'moved')
),
redriven as (
    select distinct r.raft_group, r.index from redrives r
)
select
    m.unique_key,
    m.store_time as time,
    m.raft_group,
    m.index,
    case
        when m.topic = 'RMQ_SYS_TRANS_HALF_TOPIC' then 'prepared'
        when m.topic in ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer') and d.event = 'moved' then 'moved'
        when m.topic in ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer')
            and substr(m.properties['REAL_TOPIC'], 1, 7) = '%RETRY%' then 'sent back'
        when m.topic in ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer') then 'delayed'
        when r.index is not null then 'redriven'
        when substr(m.topic, 1, 7) = '%RETRY%' and d.event = 'delivered' then 'delivered again'
        when substr(m.topic, 1, 7) = '%RETRY%' then 'sent back'
        when substr(m.topic, 1, 5) = '%DLQ%' then 'dead'
        else 'stored'
    end as event,
    case
        when m.topic in ('RMQ_SYS_TRANS_HALF_TOPIC', 'SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer')
        then coalesce(m.properties['REAL_TOPIC'], m.topic)
        else m.topic  -- a copy keeps the property of the message that it was made from
    end as topic,
    m.queue,
    m.offset,
    case
        when substr(m.topic, 1, 7) = '%RETRY%' then substr(m.topic, 8)
        when substr(m.topic, 1, 5) = '%DLQ%' then substr(m.topic, 6)
        when m.topic in ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer')
            and substr(m.properties['REAL_TOPIC'], 1, 7) = '%RETRY%'
        then substr(m.properties['REAL_TOPIC'], 8)
    end as consumer_group,
    d.due_time
from messages m
left join delays d
    on d.index = m.index and d.raft_group is not distinct from m.raft_group
left join redriven r
    on r.index = m.index and r.raft_group is not distinct from m.raft_group
where m.unique_key is not null
union all
select
    m.unique_key,
    e.time,
    e.raft_group,
    e.index,
    e.event,
    m.properties['REAL_TOPIC'] as topic,
    m.queue,
    m.offset,
    cast(null as varchar(255)) as consumer_group,
    case when false then e.time end as due_time
from transaction_events e
join messages m
    on m.physical_offset = e.position and m.raft_group is not distinct from e.raft_group
where m.unique_key is not null and e.event in ('checked', 'rolled back', 'given up')
union all
select
    m.unique_key,
    e.time,
    e.raft_group,
    e.index,
    case when e.event = 'dropped' then 'recalled' else e.event end as event,
    m.properties['REAL_TOPIC'] as topic,
    m.queue,
    m.offset,
    cast(null as varchar(255)) as consumer_group,
    case when false then e.time end as due_time
from delay_events e
join messages m
    on m.physical_offset = e.position and m.raft_group is not distinct from e.raft_group
where m.unique_key is not null and e.event = 'dropped'
union all
select
    m.unique_key,
    e.time,
    e.raft_group,
    e.index,
    e.event,
    m.topic,
    m.queue,
    m.offset,
    e.consumer_group,
    e.visible_time as due_time
from pop_events e
join messages m
    on m.topic = e.topic and m.topic_life = e.topic_life and m.queue = e.queue and m.offset = e.offset
    and m.raft_group is not distinct from e.raft_group
where m.unique_key is not null
