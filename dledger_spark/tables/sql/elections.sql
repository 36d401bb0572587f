-- Each term in the log: its entries, its leader, and how long no message was stored before its
-- first one. The leader is the member that says so in the log, where members share an address;
-- else the address that the messages of the term carry.
with terms as (
    select
        e.raft_group,
        e.term,
        min(e.index) as first_index,
        max(e.index) as last_index,
        count(*) as entries
    from entries e
    group by e.raft_group, e.term
),
stored as (
    select
        m.raft_group,
        m.term,
        count(*) as messages,
        min(m.store_time) as first_time,
        max(m.store_time) as last_time,
        max(concat(m.store_host, ':', cast(m.store_port as varchar(12)))) as leader
    from messages m
    where m.store_time is not null
    group by m.raft_group, m.term
),
led as (
    select
        c.raft_group,
        c.term,
        max(get_json_object(c.detail, '$.node_id')) as leader
    from commands c
    where c.name = 'lead from'
    group by c.raft_group, c.term
),
told as (
    select
        t.raft_group,
        t.term,
        t.first_index,
        t.last_index,
        t.entries,
        coalesce(l.leader, s.leader) as leader,
        s.messages,
        s.first_time,
        s.last_time,
        max(s.last_time) over (
            partition by t.raft_group
            order by t.term
            rows between unbounded preceding and 1 preceding
        ) as before_time
    from terms t
    left join stored s on s.term = t.term and s.raft_group is not distinct from t.raft_group
    left join led l on l.term = t.term and l.raft_group is not distinct from t.raft_group
)
select
    d.raft_group,
    d.term,
    d.leader,
    d.first_index,
    d.last_index,
    d.entries,
    coalesce(d.messages, 0) as messages,
    d.first_time,
    d.last_time,
    unix_millis(d.first_time) - unix_millis(d.before_time) as gap_ms
from told d
