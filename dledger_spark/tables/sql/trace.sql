-- What happened to a message, by its unique key: each time it was stored (its copies for delays,
-- retries, transactions and dead letters are stored as well), how its transaction and its delay
-- ended, and each group's pops. When a group's progress passed it is in the table of latencies, and
-- by offset in consumer_progress.
select
    m.unique_key,
    m.store_time as time,
    m.raft_group,
    m.index,
    case
        when m.topic = 'RMQ_SYS_TRANS_HALF_TOPIC' then 'prepared'
        when m.topic = 'SCHEDULE_TOPIC_XXXX' or m.topic = 'rmq_sys_wheel_timer' then 'delayed'
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
    end as consumer_group
from messages m
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
    cast(null as varchar(255)) as consumer_group
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
    cast(null as varchar(255)) as consumer_group
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
    e.consumer_group
from pop_events e
join messages m
    on m.topic = e.topic and m.topic_life = e.topic_life and m.queue = e.queue and m.offset = e.offset
    and m.raft_group is not distinct from e.raft_group
where m.unique_key is not null
