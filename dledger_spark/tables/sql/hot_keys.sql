-- The twenty keys of each topic that the most messages of ten minutes carry.
with words as (
    select
        m.raft_group,
        m.topic,
        timestamp_millis(unix_millis(m.store_time) - unix_millis(m.store_time) % 600000)
            as since,
        explode(split(m.keys, ' ')) as key,
        m.body_size
    from messages m
    where m.keys is not null and m.store_time is not null
),
counted as (
    select
        w.raft_group,
        w.topic,
        w.since,
        w.key,
        count(*) as messages,
        cast(sum(w.body_size) as bigint) as bytes
    from words w
    where w.key <> ''
    group by w.raft_group, w.topic, w.since, w.key
),
ranked as (
    select
        c.raft_group,
        c.topic,
        c.since,
        c.key,
        c.messages,
        c.bytes,
        row_number() over (
            partition by c.raft_group, c.topic, c.since
            order by c.messages desc, c.key
        ) as place
    from counted c
)
select r.raft_group, r.topic, r.since, cast(r.place as bigint) as place, r.key, r.messages, r.bytes
from ranked r
where r.place <= 20
