-- Messages that consumers of a group have sent back: how often, and whether they became dead
-- letters. RocketMQ stores a copy in %RETRY%GROUP for each time.
with copies as (
    select
        m.raft_group,
        substr(m.topic, 8) as consumer_group,
        coalesce(m.properties['ORIGIN_MESSAGE_ID'], m.message_id) as origin_message_id,
        m.properties['RETRY_TOPIC'] as topic,
        m.unique_key,
        m.reconsume_times,
        m.store_time,
        false as is_dead
    from messages m
    where substr(m.topic, 1, 7) = '%RETRY%'
    union all
    select
        m.raft_group,
        substr(m.topic, 6) as consumer_group,
        coalesce(m.properties['ORIGIN_MESSAGE_ID'], m.properties['DLQ_ORIGIN_MESSAGE_ID'])
            as origin_message_id,
        coalesce(m.properties['RETRY_TOPIC'], m.properties['DLQ_ORIGIN_TOPIC']) as topic,
        m.unique_key,
        m.reconsume_times,
        m.store_time,
        true as is_dead
    from messages m
    where substr(m.topic, 1, 5) = '%DLQ%' and m.properties['ORIGIN_MESSAGE_ID'] is not null
)
select
    c.raft_group,
    c.consumer_group,
    c.topic,
    c.origin_message_id,
    max(c.unique_key) as unique_key,
    count(*) filter (where not c.is_dead) as retries,
    max(c.reconsume_times) as reconsume_times,
    min(c.store_time) as first_time,
    max(c.store_time) as last_time,
    max(case when c.is_dead then 1 else 0 end) = 1 as is_dead
from copies c
group by c.raft_group, c.consumer_group, c.topic, c.origin_message_id
