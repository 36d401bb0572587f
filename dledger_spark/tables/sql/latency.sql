-- How long messages took, by topic and minute of storing, in milliseconds:
-- 'stored': from the producer's clock to the store;
-- 'committed': from there until a commit of a group was past the message. Clients commit every 5 s
-- what they consumed, so this is when it was known, and at most 5 s later than it was so;
-- 'uncommitted': from the store to the commit before that one, which was not past the message (0 if
-- there was none since the store): the group consumed it between the two, if it consumes in order;
-- 'acknowledged': from the store to the first acknowledgement by a group that pops.
-- There is a row for each group; what it has not consumed does not count.
--
-- The rows of a minute are a function of its messages, of the acknowledgements of these, and of the
-- commits past the first of them and those right before these.
with commits as (
    select
        p.raft_group,
        p.consumer_group,
        p.topic,
        p.topic_life,
        p.queue,
        p.offset,
        p.time,
        max(p.offset) over (
            partition by p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue
            order by p.time, p.index
            rows between unbounded preceding and 1 preceding
        ) as before_offset,
        lag(p.time) over (
            partition by p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue
            order by p.time, p.index
        ) as before_time
    from consumer_progress p
    where p.offset is not null and p.source = 'committed' and p.time is not null
),
-- Commits that went further than all before them.
passed as (
    select
        c.raft_group,
        c.consumer_group,
        c.topic,
        c.topic_life,
        c.queue,
        c.offset,
        c.time,
        coalesce(unix_millis(c.before_time), 0) as before_ms
    from commits c
    where c.before_offset is null or c.offset > c.before_offset
),
readers as (
    select distinct v.raft_group, v.consumer_group, v.topic, v.topic_life, v.queue from passed v
),
-- From the last message of a queue to the first, each commit behind the messages that it is not past.
marks as (
    select
        v.raft_group,
        v.consumer_group,
        v.topic,
        v.topic_life,
        v.queue,
        v.offset,
        0 as is_message,
        v.time as passed_time,
        v.before_ms,
        case when false then v.time end as store_time
    from passed v
    union all
    select
        r.raft_group,
        r.consumer_group,
        r.topic,
        r.topic_life,
        r.queue,
        m.offset,
        1 as is_message,
        case when false then m.store_time end as passed_time,
        cast(null as bigint) as before_ms,
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
            order by k.offset desc, k.is_message desc
            rows between unbounded preceding and current row
        ) as passed_time,
        min(k.before_ms) over (
            partition by k.raft_group, k.consumer_group, k.topic, k.topic_life, k.queue
            order by k.offset desc, k.is_message desc
            rows between unbounded preceding and current row
        ) as before_ms
    from marks k
),
acknowledged as (
    select
        e.raft_group,
        e.consumer_group,
        e.topic,
        e.topic_life,
        e.queue,
        e.offset,
        min(e.time) as time
    from pop_events e
    where e.event = 'acknowledged' and e.time is not null
    group by e.raft_group, e.consumer_group, e.topic, e.topic_life, e.queue, e.offset
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
        'committed' as kind,
        c.raft_group,
        c.consumer_group,
        c.topic,
        c.store_time,
        greatest(unix_millis(c.passed_time) - unix_millis(c.store_time), 0) as ms
    from consumed c
    where c.store_time is not null and c.passed_time is not null
    union all
    select
        'uncommitted' as kind,
        c.raft_group,
        c.consumer_group,
        c.topic,
        c.store_time,
        greatest(c.before_ms - unix_millis(c.store_time), 0) as ms
    from consumed c
    where c.store_time is not null and c.passed_time is not null
    union all
    select
        'acknowledged' as kind,
        a.raft_group,
        a.consumer_group,
        a.topic,
        m.store_time,
        greatest(unix_millis(a.time) - unix_millis(m.store_time), 0) as ms
    from acknowledged a
    join messages m
        on m.topic = a.topic and m.topic_life = a.topic_life and m.queue = a.queue and m.offset = a.offset
        and m.raft_group is not distinct from a.raft_group
    where m.store_time is not null
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
