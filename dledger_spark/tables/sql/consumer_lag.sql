-- What a consumer group has not consumed of a queue at the end of each minute in which the queue or
-- the group moved: messages, and the age of the first of them. The group is known from its first
-- commit on. RocketMQ: rocketmq_consumer_lag_messages, rocketmq_consumer_lag_latency.
with ends as (
    select
        m.raft_group,
        m.topic,
        m.topic_life,
        m.queue,
        date_trunc('minute', m.store_time) as minute,
        max(m.offset) + 1 as queue_end
    from messages m
    where m.store_time is not null
    group by m.raft_group, m.topic, m.topic_life, m.queue, date_trunc('minute', m.store_time)
),
moves as (
    select
        p.raft_group,
        p.consumer_group,
        p.topic,
        p.topic_life,
        p.queue,
        date_trunc('minute', p.time) as minute,
        max(p.index) as move
    from consumer_progress p
    where p.time is not null
    group by p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue, date_trunc('minute', p.time)
),
readers as (
    select
        v.raft_group,
        v.consumer_group,
        v.topic,
        v.topic_life,
        v.queue,
        min(v.minute) as since
    from moves v
    group by v.raft_group, v.consumer_group, v.topic, v.topic_life, v.queue
),
minutes as (
    select v.raft_group, v.consumer_group, v.topic, v.topic_life, v.queue, v.minute from moves v
    union
    select r.raft_group, r.consumer_group, r.topic, r.topic_life, r.queue, e.minute
    from readers r
    join ends e
        on e.topic = r.topic and e.topic_life = r.topic_life and e.queue = r.queue and e.minute >= r.since
        and e.raft_group is not distinct from r.raft_group
),
known as (
    select
        n.raft_group,
        n.consumer_group,
        n.topic,
        n.topic_life,
        n.queue,
        n.minute,
        max(v.move) over (
            partition by n.raft_group, n.consumer_group, n.topic, n.topic_life, n.queue
            order by n.minute
            rows between unbounded preceding and current row
        ) as move
    from minutes n
    left join moves v
        on v.consumer_group = n.consumer_group and v.topic = n.topic and v.topic_life = n.topic_life and v.queue = n.queue
        and v.minute = n.minute and v.raft_group is not distinct from n.raft_group
),
queues as (
    select e.raft_group, e.topic, e.topic_life, e.queue, e.minute, e.queue_end from ends e
    union all
    select distinct k.raft_group, k.topic, k.topic_life, k.queue, k.minute, cast(null as bigint) from known k
),
filled as (
    select
        q.raft_group,
        q.topic,
        q.topic_life,
        q.queue,
        q.minute,
        max(q.queue_end) over (
            partition by q.raft_group, q.topic, q.topic_life, q.queue
            order by q.minute
            range between unbounded preceding and current row
        ) as queue_end
    from queues q
),
reached as (
    select f.raft_group, f.topic, f.topic_life, f.queue, f.minute, max(f.queue_end) as queue_end
    from filled f
    group by f.raft_group, f.topic, f.topic_life, f.queue, f.minute
),
log_end as (
    select max(m.store_time) as time from messages m
)
select
    k.raft_group,
    k.consumer_group,
    k.topic,
    k.topic_life,
    k.queue,
    k.minute,
    p.offset as consumer_offset,
    coalesce(r.queue_end, 0) as queue_end,
    greatest(coalesce(r.queue_end, 0) - p.offset, 0) as lag_messages,
    case
        when coalesce(r.queue_end, 0) <= p.offset then 0
        when m.store_time is null then null
        else greatest(
            least(
                unix_millis(k.minute) + 60000,
                greatest(unix_millis(l.time), unix_millis(k.minute))
            ) - unix_millis(m.store_time),
            0
        )
    end as lag_ms
from known k
join consumer_progress p
    on p.index = k.move and p.consumer_group = k.consumer_group and p.topic = k.topic
    and p.topic_life = k.topic_life
    and p.queue = k.queue and p.raft_group is not distinct from k.raft_group
left join reached r
    on r.topic = k.topic and r.topic_life = k.topic_life and r.queue = k.queue and r.minute = k.minute
    and r.raft_group is not distinct from k.raft_group
left join messages m
    on m.topic = k.topic and m.topic_life = k.topic_life and m.queue = k.queue and m.offset = p.offset
    and m.raft_group is not distinct from k.raft_group
cross join log_end l
where p.offset is not null
