-- Transactions in the manner of TPC-C. Each session has a warehouse of its own, in temporary tables: they lie in the
-- session's own memory, as VoltDB's partitions do. Smaller than TPC-C's: no names and addresses, amounts in cents.
set check_function_bodies = off;

-- Makes the session's warehouse.
create function load(customers int, items int) returns void language plpgsql as $$
begin
    create temp table district (d_id int primary key, d_ytd bigint not null default 0, d_next_o_id int not null default 1);
    create temp table customer (c_d_id int, c_id int, c_balance bigint not null default 0, c_payments int not null default 0,
        c_data text, primary key (c_d_id, c_id));
    create temp table item (i_id int primary key, i_price int, i_data text);
    create temp table stock (s_i_id int primary key, s_quantity int, s_ytd int not null default 0, s_data text);
    create temp table orders (o_d_id int, o_id int, o_c_id int, o_delivered boolean not null default false,
        primary key (o_d_id, o_id));
    create index on orders (o_d_id, o_c_id);
    create index on orders (o_d_id, o_id) where not o_delivered;
    create temp table order_line (ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_amount int,
        primary key (ol_d_id, ol_o_id, ol_number));
    create temp table history (h_c_id int, h_amount int);
    insert into district select d from generate_series(1, 10) d;
    insert into customer select d, c, 0, 0, repeat(md5(c::text), 10)
        from generate_series(1, 10) d, generate_series(1, customers) c;
    insert into item select i, 100 + i % 9900, md5(i::text) from generate_series(1, items) i;
    insert into stock select i, 50, 0, repeat(md5(i::text), 6) from generate_series(1, items) i;
    analyze district, customer, item, stock;
end $$;

-- TPC-C's non-uniform random number (clause 2.1.6) from 1 to `most`.
create function nurand(a int, most int) returns int language sql volatile as $$
    select ((floor(random() * (a + 1))::int | (1 + floor(random() * most)::int)) % most) + 1
$$;

create function new_order(d int, c int, lines int, items int) returns int language plpgsql as $$
declare
    o int;
    i int;
begin
    update district set d_next_o_id = d_next_o_id + 1 where d_id = d returning d_next_o_id - 1 into o;
    insert into orders values (d, o, c);
    for line in 1..lines loop
        i := nurand(8191, items);
        update stock set s_quantity = case when s_quantity > 10 then s_quantity - 5 else s_quantity + 86 end,
            s_ytd = s_ytd + 5 where s_i_id = i;
        insert into order_line select d, o, line, i, 5 * i_price from item where i_id = i;
    end loop;
    return o;
end $$;

create function payment(d int, c int, amount int) returns bigint language plpgsql as $$
declare
    balance bigint;
begin
    update district set d_ytd = d_ytd + amount where d_id = d;
    update customer set c_balance = c_balance - amount, c_payments = c_payments + 1
        where c_d_id = d and c_id = c returning c_balance into balance;
    insert into history values (c, amount);
    return balance;
end $$;

create function order_status(d int, c int) returns bigint language plpgsql as $$
begin
    return (select sum(ol_amount) from order_line where ol_d_id = d and ol_o_id =
        (select max(o_id) from orders where o_d_id = d and o_c_id = c));
end $$;

create function delivery() returns int language plpgsql as $$
declare
    oldest record;
    delivered int := 0;
begin
    for d in 1..10 loop
        select o_id, o_c_id into oldest from orders where o_d_id = d and not o_delivered order by o_id limit 1;
        continue when not found;
        update orders set o_delivered = true where o_d_id = d and o_id = oldest.o_id;
        update customer set c_balance = c_balance + (select coalesce(sum(ol_amount), 0) from order_line
                where ol_d_id = d and ol_o_id = oldest.o_id)
            where c_d_id = d and c_id = oldest.o_c_id;
        delivered := delivered + 1;
    end loop;
    return delivered;
end $$;

create function stock_level(d int) returns bigint language plpgsql as $$
begin
    return (select count(distinct s_i_id) from district
        join order_line on ol_d_id = d and ol_o_id between d_next_o_id - 20 and d_next_o_id
        join stock on s_i_id = ol_i_id
        where d_id = d and s_quantity < 20);
end $$;

-- Fails where the session's books do not agree: TPC-C's conditions 1 and 2, each payment booked thrice, all stock there.
create function close_books(customers int, items int) returns void language plpgsql as $$
begin
    if not (select (select sum(d_ytd) from district) = (select coalesce(sum(h_amount), 0) from history)
        and (select sum(d_next_o_id - 1) from district) = (select count(*) from orders)
        and (select sum(c_payments) from customer) = (select count(*) from history)
        and (select sum(s_ytd) from stock) = (select 5 * count(*) from order_line)
        and (select count(*) from stock where s_data = repeat(md5(s_i_id::text), 6)) = items
        and (select count(*) from customer where c_data = repeat(md5(c_id::text), 10)) = 10 * customers) then
        raise exception 'error: the books do not agree';
    end if;
end $$;
