-- Each message in the dead letter topic of a group: where it came from, why it is there, how often
-- pops gave it before (null for one that was sent back too often: `reconsume_times` counts its
-- failures), and whether it was delivered once more.
with redriven as (
    select r.raft_group, r.topic, r.topic_life, r.queue, r.offset, min(r.time) as time
    from redrives r
    group by r.raft_group, r.topic, r.topic_life, r.queue, r.offset
),
buried as (
    select b.raft_group, b.index, count(g.index) as given
    from pop_events b
    left join pop_events g
        on g.consumer_group = b.consumer_group and g.topic = b.topic and g.topic_life = b.topic_life
        and g.queue = b.queue and g.offset = b.offset and g.event = 'given' and g.index < b.index
        and g.raft_group is not distinct from b.raft_group
    where b.event = 'buried'
    group by b.raft_group, b.index
)
select
    m.raft_group,
    substr(m.topic, 6) as consumer_group,
    coalesce(m.properties['DLQ_ORIGIN_TOPIC'], m.properties['RETRY_TOPIC']) as topic,
    coalesce(m.properties['DLQ_ORIGIN_MESSAGE_ID'], m.properties['ORIGIN_MESSAGE_ID'])
        as origin_message_id,
    m.unique_key,
    m.keys,
    m.queue,
    m.offset,
    m.index,
    m.reconsume_times,
    b.given,
    m.store_time as dead_time,
    case when b.index is not null then 'popped too often' else 'sent back too often' end as reason,
    r.time as redriven_time
from messages m
left join redriven r
    on r.topic = m.topic and r.topic_life = m.topic_life and r.queue = m.queue and r.offset = m.offset
    and r.raft_group is not distinct from m.raft_group
left join buried b
    on b.index = m.index and b.raft_group is not distinct from m.raft_group
where substr(m.topic, 1, 5) = '%DLQ%'
