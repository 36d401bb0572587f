-- How long messages took, by topic and minute of storing: from the producer's clock to the store
-- (kind 'stored'), and from there until a group's progress was past the message (kind 'consumed',
-- a row for each group; what it has not consumed does not count). Milliseconds.
with passed as (
    select
        p.raft_group,
        p.consumer_group,
        p.topic,
        p.topic_life,
        p.queue,
        p.offset,
        min(p.time) as time
    from consumer_progress p
    where p.offset is not null and p.source <> 'reset' and p.time is not null
    group by p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue, p.offset
),
readers as (
    select distinct v.raft_group, v.consumer_group, v.topic, v.topic_life, v.queue from passed v
),
marks as (
    select
        v.raft_group,
        v.consumer_group,
        v.topic,
        v.topic_life,
        v.queue,
        v.offset * 2 - 1 as at,
        v.time as passed_time,
        case when false then v.time end as store_time
    from passed v
    union all
    select
        r.raft_group,
        r.consumer_group,
        r.topic,
        r.topic_life,
        r.queue,
        m.offset * 2 as at,
        case when false then m.store_time end as passed_time,
        m.store_time
    from readers r
    join messages m
        on m.topic = r.topic and m.topic_life = r.topic_life and m.queue = r.queue
        and m.raft_group is not distinct from r.raft_group
    where m.store_time is not null
),
consumed as (
    select
        k.raft_group,
        k.consumer_group,
        k.topic,
        k.topic_life,
        k.store_time,
        min(k.passed_time) over (
            partition by k.raft_group, k.consumer_group, k.topic, k.topic_life, k.queue
            order by k.at desc
            rows between unbounded preceding and current row
        ) as passed_time
    from marks k
),
took as (
    select
        'stored' as kind,
        m.raft_group,
        cast(null as varchar(255)) as consumer_group,
        m.topic,
        m.store_time,
        unix_millis(m.store_time) - unix_millis(m.born_time) as ms
    from messages m
    where m.store_time is not null and m.born_time is not null
    union all
    select
        'consumed' as kind,
        c.raft_group,
        c.consumer_group,
        c.topic,
        c.store_time,
        greatest(unix_millis(c.passed_time) - unix_millis(c.store_time), 0) as ms
    from consumed c
    where c.store_time is not null and c.passed_time is not null
),
-- Times are counted, and percentiles are found among the counts. (An aggregate of percentiles would
-- hold all times of the log in memory.)
counted as (
    select
        t.kind,
        t.raft_group,
        t.consumer_group,
        t.topic,
        date_trunc('minute', t.store_time) as minute,
        t.ms,
        count(*) as messages
    from took t
    group by t.kind, t.raft_group, t.consumer_group, t.topic, date_trunc('minute', t.store_time), t.ms
),
placed as (
    select
        c.kind,
        c.raft_group,
        c.consumer_group,
        c.topic,
        c.minute,
        c.ms,
        c.messages,
        sum(c.messages) over (
            partition by c.kind, c.raft_group, c.consumer_group, c.topic, c.minute
            order by c.ms
            rows between unbounded preceding and current row
        ) as through,
        -- Of times from 0 to n - 1, a percentile lies at the place p * (n - 1), often between two.
        cast(
            sum(c.messages) over (
                partition by c.kind, c.raft_group, c.consumer_group, c.topic, c.minute
            ) - 1 as double
        ) as last_place
    from counted c
),
between_two as (
    select
        p.kind,
        p.raft_group,
        p.consumer_group,
        p.topic,
        p.minute,
        cast(sum(p.messages) as bigint) as messages,
        max(p.last_place) as last_place,
        min(case when p.through > floor(p.last_place * 0.5e0) then p.ms end) as p50_from,
        min(case when p.through > ceil(p.last_place * 0.5e0) then p.ms end) as p50_to,
        min(case when p.through > floor(p.last_place * 0.95e0) then p.ms end) as p95_from,
        min(case when p.through > ceil(p.last_place * 0.95e0) then p.ms end) as p95_to,
        min(case when p.through > floor(p.last_place * 0.99e0) then p.ms end) as p99_from,
        min(case when p.through > ceil(p.last_place * 0.99e0) then p.ms end) as p99_to,
        max(p.ms) as max_ms
    from placed p
    group by p.kind, p.raft_group, p.consumer_group, p.topic, p.minute
)
select
    b.kind,
    b.raft_group,
    b.consumer_group,
    b.topic,
    b.minute,
    b.messages,
    b.p50_from + (b.p50_to - b.p50_from) * (b.last_place * 0.5e0 - floor(b.last_place * 0.5e0))
        as p50_ms,
    b.p95_from + (b.p95_to - b.p95_from) * (b.last_place * 0.95e0 - floor(b.last_place * 0.95e0))
        as p95_ms,
    b.p99_from + (b.p99_to - b.p99_from) * (b.last_place * 0.99e0 - floor(b.last_place * 0.99e0))
        as p99_ms,
    b.max_ms
from between_two b
