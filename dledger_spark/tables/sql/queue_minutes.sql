-- The offsets of each queue and minute. Other derived tables are made with it, it is not for queries.
select
    m.raft_group,
    m.topic,
    m.topic_life,
    m.queue,
    date_trunc('minute', m.store_time) as minute,
    min(m.offset) as first_offset,
    max(m.offset) as last_offset,
    max(m.store_time) as last_time
from messages m
where m.store_time is not null
group by m.raft_group, m.topic, m.topic_life, m.queue, date_trunc('minute', m.store_time)
