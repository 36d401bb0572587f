-- Messages of each topic, queue and minute. Sizes are those of bodies as stored, in the classes of
-- RocketMQ's rocketmq_message_size.
select
    m.raft_group,
    m.topic,
    m.queue,
    date_trunc('minute', m.store_time) as minute,
    count(*) as messages,
    cast(sum(m.body_size) as bigint) as bytes,
    count(*) filter (where m.body_size <= 1024) as le_1_kb,
    count(*) filter (where m.body_size > 1024 and m.body_size <= 4096) as le_4_kb,
    count(*) filter (where m.body_size > 4096 and m.body_size <= 524288) as le_512_kb,
    count(*) filter (where m.body_size > 524288 and m.body_size <= 1048576) as le_1_mb,
    count(*) filter (where m.body_size > 1048576 and m.body_size <= 2097152) as le_2_mb,
    count(*) filter (where m.body_size > 2097152) as le_4_mb
from messages m
where m.store_time is not null
group by m.raft_group, m.topic, m.queue, date_trunc('minute', m.store_time)
