-- Tables and transactions in the manner of TPC-C, smaller: no names and addresses, amounts in cents.
create table warehouse (w_id int primary key, w_ytd bigint not null default 0);
create table district (d_w_id int, d_id int, d_ytd bigint not null default 0, d_next_o_id int not null default 1,
    primary key (d_w_id, d_id));
create table customer (c_w_id int, c_d_id int, c_id int, c_balance bigint not null default 0, c_payments int not null default 0,
    c_data text, primary key (c_w_id, c_d_id, c_id));
create table item (i_id int primary key, i_price int, i_data text);
create table stock (s_w_id int, s_i_id int, s_quantity int, s_ytd int not null default 0, s_data text,
    primary key (s_w_id, s_i_id));
create table orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_delivered boolean not null default false,
    primary key (o_w_id, o_d_id, o_id));
create index on orders (o_w_id, o_d_id, o_c_id);
create index on orders (o_w_id, o_d_id, o_id) where not o_delivered;
create table order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_amount int,
    primary key (ol_w_id, ol_d_id, ol_o_id, ol_number));
create table history (h_w_id int, h_d_id int, h_c_id int, h_amount int);

insert into warehouse select w from generate_series(1, :warehouses) w;
insert into district select w, d from generate_series(1, :warehouses) w, generate_series(1, 10) d;
insert into customer select w, d, c, 0, 0, repeat(md5(c::text), 10)
    from generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, :customers) c;
insert into item select i, 100 + i % 9900, md5(i::text) from generate_series(1, :items) i;
insert into stock select w, i, 50, 0, repeat(md5(i::text), 6)
    from generate_series(1, :warehouses) w, generate_series(1, :items) i;

create function new_order(w int, d int, c int, first_item int, lines int, items int) returns int language plpgsql as $$
declare
    o int;
    i int;
begin
    update district set d_next_o_id = d_next_o_id + 1 where d_w_id = w and d_id = d returning d_next_o_id - 1 into o;
    insert into orders values (w, d, o, c);
    -- In the order of items, so that no two orders wait for each other.
    for i in select distinct (first_item * n * 7919) % items + 1 from generate_series(1, lines) n order by 1 loop
        update stock set s_quantity = case when s_quantity > 10 then s_quantity - 5 else s_quantity + 86 end,
            s_ytd = s_ytd + 5 where s_w_id = w and s_i_id = i;
        insert into order_line select w, d, o, i, i, 5 * i_price from item where i_id = i;
    end loop;
    return o;
end $$;

create function payment(w int, d int, c int, amount int) returns bigint language plpgsql as $$
declare
    balance bigint;
begin
    update warehouse set w_ytd = w_ytd + amount where w_id = w;
    update district set d_ytd = d_ytd + amount where d_w_id = w and d_id = d;
    update customer set c_balance = c_balance - amount, c_payments = c_payments + 1
        where c_w_id = w and c_d_id = d and c_id = c returning c_balance into balance;
    insert into history values (w, d, c, amount);
    return balance;
end $$;

create function order_status(w int, d int, c int) returns bigint language sql as $$
    select sum(ol_amount) from order_line
    where ol_w_id = w and ol_d_id = d and ol_o_id =
        (select max(o_id) from orders where o_w_id = w and o_d_id = d and o_c_id = c)
$$;

create function delivery(w int) returns int language plpgsql as $$
declare
    oldest record;
    delivered int := 0;
begin
    -- One delivery of a warehouse at a time.
    perform pg_advisory_xact_lock(w);
    for d in 1..10 loop
        select o_id, o_c_id into oldest from orders where o_w_id = w and o_d_id = d and not o_delivered order by o_id limit 1;
        continue when not found;
        update orders set o_delivered = true where o_w_id = w and o_d_id = d and o_id = oldest.o_id;
        update customer set c_balance = c_balance + (select coalesce(sum(ol_amount), 0) from order_line
                where ol_w_id = w and ol_d_id = d and ol_o_id = oldest.o_id)
            where c_w_id = w and c_d_id = d and c_id = oldest.o_c_id;
        delivered := delivered + 1;
    end loop;
    return delivered;
end $$;

create function stock_level(w int, d int) returns bigint language sql as $$
    select count(distinct s_i_id) from district
    join order_line on ol_w_id = w and ol_d_id = d and ol_o_id between d_next_o_id - 20 and d_next_o_id
    join stock on s_w_id = w and s_i_id = ol_i_id
    where d_w_id = w and d_id = d and s_quantity < 20
$$;

-- Whether the books agree: TPC-C's conditions 1 and 2, and each payment booked thrice.
create view books as select
    (select sum(w_ytd) from warehouse) = (select sum(d_ytd) from district)
    and (select sum(w_ytd) from warehouse) = (select coalesce(sum(h_amount), 0) from history)
    and (select sum(d_next_o_id - 1) from district) = (select count(*) from orders)
    and (select sum(c_payments) from customer) = (select count(*) from history) as agree;
