-- pgbench's tables, in temporary tables of each session: they lie in the session's own memory. Balances begin with a
-- number of the account's own, so that a balance that is lost shows.

create function first_balance(a int) returns int language sql immutable as $$ select (a::bigint * 7919 % 9973)::int $$;

-- Makes the session's tables. A branch has 10 tellers and 100,000 accounts, as pgbench has it.
create function load(accounts int) returns void language plpgsql as $$
declare
    branches int := (accounts + 99999) / 100000;
begin
    create temp table pgbench_branches (bid int primary key, bbalance int, filler char(88)) with (fillfactor = 50);
    create temp table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84)) with (fillfactor = 50);
    create temp table pgbench_accounts (aid int not null, bid int, abalance int, filler char(84));
    create temp table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
    insert into pgbench_branches select b, 0, '' from generate_series(1, branches) b;
    insert into pgbench_tellers select t, (t - 1) / 10 + 1, 0, '' from generate_series(1, branches * 10) t;
    insert into pgbench_accounts select a, (a - 1) / 100000 + 1, first_balance(a), '' from generate_series(1, accounts) a;
    alter table pgbench_accounts add primary key (aid);
    analyze pgbench_accounts, pgbench_tellers, pgbench_branches;
end $$;

-- pgbench's select-only transaction; fails where the balance is not the account's first.
create function look(a int) returns int language plpgsql as $$
declare
    balance int;
begin
    select abalance into balance from pgbench_accounts where aid = a;
    if balance is distinct from first_balance(a) then
        raise exception 'error: the books do not agree';
    end if;
    return balance;
end $$;

-- pgbench's transaction in the manner of TPC-B.
create function transfer(a int, t int, b int, amount int) returns int language plpgsql as $$
declare
    balance int;
begin
    update pgbench_accounts set abalance = abalance + amount where aid = a;
    select abalance into balance from pgbench_accounts where aid = a;
    update pgbench_tellers set tbalance = tbalance + amount where tid = t;
    update pgbench_branches set bbalance = bbalance + amount where bid = b;
    insert into pgbench_history (tid, bid, aid, delta, mtime) values (t, b, a, amount, current_timestamp);
    return balance;
end $$;

-- Fails where the session's balances are not what the transactions have made of them.
create function close_books(accounts int) returns void language plpgsql as $$
declare
    moved bigint := (select coalesce(sum(delta), 0) from pgbench_history);
begin
    if not (select count(*) = accounts and sum(abalance - first_balance(aid)) = moved from pgbench_accounts)
        or (select sum(tbalance) from pgbench_tellers) <> moved
        or (select sum(bbalance) from pgbench_branches) <> moved then
        raise exception 'error: the books do not agree';
    end if;
end $$;
