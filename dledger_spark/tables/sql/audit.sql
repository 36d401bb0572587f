-- Each request that changes what others use, where brokers have access control: who asked, from
-- where, and about what. It is recorded before it is carried out; whether it was, the commands
-- behind it show.
select
    c.raft_group,
    c.index,
    c.term,
    c.time,
    get_json_object(c.detail, '$.user') as user_name,
    get_json_object(c.detail, '$.peer') as peer,
    get_json_object(c.detail, '$.request') as request,
    get_json_object(c.detail, '$.about') as about
from commands c
where c.name = 'audit request'
