// Asks for what runs once a second, and shows it. Names come from programs: they are set as text, never as
// markup.
'use strict';

const PERIOD_MS = 1000;
const KEPT_POINTS = 300; // five minutes
const SVG = 'http://www.w3.org/2000/svg';
const histories = new Map();
let heat = [];
let pools = [];

const scaled = (value, step, units) => {
  let unit = 0;
  while (value >= 999.5 && unit + 1 < units.length) { value /= step; unit += 1; }
  return (unit > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0)) + units[unit];
};
const bytes = (value) => value === null ? '-' : scaled(value, 1024, ['', 'K', 'M', 'G', 'T', 'P']);
const count = (value) => scaled(value, 1000, ['', 'k', 'M', 'G', 'T']);
const micros = (us) => {
  if (us === null) { return '-'; }
  return us < 999.5 ? `${us.toFixed(us < 9.95 ? 1 : 0)} us` : us < 999500 ? `${(us / 1e3).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`;
};
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;

const element = (name, text, ...classes) => {
  const made = document.createElement(name);
  if (classes.length > 0) { made.classList.add(...classes); }
  if (text !== undefined) { made.textContent = text; }
  return made;
};
const drawn = (name, attributes) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) { made.setAttribute(key, value); }
  return made;
};

const bar = (row) => {
  const donor = row.kind === 'donor';
  // Of a donor: what is held, and what is promised beyond that.
  const far_bytes = donor ? Math.max(row.donor.memory.promised_bytes - row.local_bytes, 0) : row.far_bytes;
  const all = Math.max(row.local_limit_bytes ?? 0, row.local_bytes + far_bytes, 1);
  const picture = drawn('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img' });
  picture.append(drawn('rect', { class: 'room', width: 100, height: 8 }));
  const local = 100 * row.local_bytes / all;
  picture.append(drawn('rect', { class: 'local', width: local, height: 8 }));
  picture.append(drawn('rect', { class: 'far', x: local, width: 100 * far_bytes / all, height: 8 }));
  const title = drawn('title', {});
  title.textContent = donor ? `${bytes(row.local_bytes)} held, ${bytes(far_bytes)} more promised`
    : `${bytes(row.local_bytes)} local, ${bytes(row.far_bytes)} far`;
  picture.append(title);
  return picture;
};

// What a donor takes in is written to it, what it gives out is read.
const rates_of = (row) => {
  const rates = row.kind === 'donor' ? row.donor.rates : row.rates;
  if (rates === null) { return Array(6).fill('-'); }
  return row.kind === 'donor' ? [
    '-', '-', '-', '-', bytes(rates.written_bytes_per_s), bytes(rates.read_bytes_per_s),
  ] : [
    count(rates.faults_per_s), micros(rates.fault_p50_us), micros(rates.fault_p99_us), percent(rates.lost_share),
    bytes(rates.fetched_bytes_per_s), bytes(rates.written_bytes_per_s),
  ];
};

const listed = (row) => {
  const line = element('tr', undefined, row.kind);
  const memory = element('td', undefined, 'memory');
  memory.append(bar(row));
  line.append(element('td', row.name), element('td', String(row.pid)), memory);
  const far = row.kind === 'donor' ? '-' : bytes(row.far_bytes);
  const cells = [bytes(row.local_bytes), bytes(row.local_limit_bytes), far, ...rates_of(row)];
  for (const cell of cells) { line.append(element('td', cell, 'number')); }
  return line;
};

const key_of = (row) => `${row.uid}/${row.supervisor_pid}`;

// Lines of one chart: a class and a value for each point.
const chart = (caption, points, lines, shown) => {
  const values = lines.map(([, value]) => points.map(value));
  const most = Math.max(...values.flat(), 1e-9);
  const figure = element('figure');
  const picture = drawn('svg', { class: 'chart', viewBox: `0 0 ${KEPT_POINTS} 100`, preserveAspectRatio: 'none', role: 'img' });
  lines.forEach(([name], at) => {
    const from = KEPT_POINTS - points.length;
    const line = values[at].map((value, x) => `${from + x},${(98 - 94 * value / most).toFixed(1)}`);
    picture.append(drawn('polyline', { class: name, points: line.join(' ') }));
  });
  figure.append(element('figcaption', `${caption}, at most ${shown(most)}`), picture);
  return figure;
};

const ago = (s) => s < 59.5 ? `${s.toFixed(0)} s ago` : `${(s / 60).toFixed(s < 570 ? 1 : 0)} min ago`;

const legend = (kinds) => {
  const list = element('ul', undefined, 'legend');
  for (const [name, amount] of kinds) {
    const swatch = drawn('svg', { class: 'swatch', viewBox: '0 0 1 1', preserveAspectRatio: 'none' });
    swatch.append(drawn('rect', { class: `heat-${name}`, width: 1, height: 1 }));
    const item = element('li');
    item.append(swatch, ` ${name} ${bytes(amount)}`);
    list.append(item);
  }
  return list;
};

// Memory over time, from left to right, and address, from the bottom up.
const memory_map = (map) => {
  const [width, rows] = [1000, map.rows.length];
  const x = (s) => width * (s - map.begin_s) / Math.max(map.end_s - map.begin_s, 1e-9);
  const picture = drawn('svg', { class: 'map', viewBox: `0 0 ${width} ${rows}`, preserveAspectRatio: 'none', role: 'img' });
  for (const [from_s, to_s, row, kind, strength] of map.stretches) {
    const rectangle = drawn('rect', {
      class: `heat-${map.kinds[kind][0]}`, x: x(from_s), y: rows - 1 - row, width: x(to_s) - x(from_s), height: 1,
      'fill-opacity': strength,
    });
    const title = drawn('title', {});
    title.textContent = `${map.kinds[kind][0]} at ${map.rows[row]}, ${ago(map.end_s - from_s)}`;
    rectangle.append(title);
    picture.append(rectangle);
  }
  const addresses = element('div', undefined, 'addresses');
  // The highest stands at the top.
  const marked = [...new Set([rows - 1, Math.floor((rows - 1) / 2), 0])];
  addresses.append(...marked.map((row) => element('span', map.rows[row])));
  const times = element('div', undefined, 'times');
  times.append(element('span', ago(map.end_s - map.begin_s)), element('span', 'now'));
  const figure = element('figure', undefined, 'memory-map');
  figure.append(element('figcaption', `${map.title}; the stronger, the more of it`), addresses, picture, times, legend(map.kinds));
  return figure;
};

const memory_maps = (row) => heat.filter((map) => map.uid === row.uid && map.supervisor_pid === row.supervisor_pid).map(memory_map);

const stores = (row) => {
  const table = tabled(['store', 'health', 'holds', 'takes', 'compressed', 'in/s', 'out/s'], []);
  for (const store of row.stores) {
    const line = element('tr');
    line.append(element('td', store.uri));
    line.append(element('td', store.health, ...(store.health === 'ok' ? [] : ['unwell'])));
    const compressed = store.compression_ratio === null ? '-' : `${store.compression_ratio.toFixed(1)}:1`;
    const values = [
      bytes(store.used_bytes), bytes(store.stored_bytes), compressed,
      bytes(store.fetched_bytes_per_s), bytes(store.written_bytes_per_s),
    ];
    line.append(...values.map((value) => element('td', value)));
    table.append(line);
  }
  return table;
};

const tabled = (names, lines) => {
  const table = element('table');
  const head = element('tr');
  for (const name of names) { head.append(element('th', name)); }
  table.append(head);
  for (const cells of lines) {
    const line = element('tr');
    for (const cell of cells) { line.append(element('td', cell)); }
    table.append(line);
  }
  return table;
};

const lending = (row) => {
  const { memory, clients, counts, pressure, listening_on: places } = row.donor;
  const card = element('section', undefined, 'card');
  const ending = row.donor.is_ending ? ', ending' : '';
  card.append(element('h2', `${row.name} (${row.pid}) on ${places.join(' and ')}${ending}`));
  const available = pressure.available_bytes === null ? '' : `; its machine has ${bytes(pressure.available_bytes)} available`;
  card.append(element('p', `${bytes(memory.offered_bytes)} lent: ${bytes(memory.used_bytes)} held, `
    + `${bytes(memory.promised_bytes)} promised, ${bytes(memory.free_bytes)} free${available}`));
  const points = histories.get(key_of(row)) ?? [];
  const charts = element('div', undefined, 'charts');
  charts.append(
    chart('held and promised', points, [['local', (p) => p.local], ['far', (p) => p.far]], bytes),
    chart('written and read a second', points, [['local', (p) => p.written], ['far', (p) => p.read]], bytes),
  );
  card.append(charts, tabled(['client', 'connections', 'exports', 'promised', 'held'], clients.map((client) => [
    client.client, String(client.connections), String(client.exports), bytes(client.promised_bytes), bytes(client.held_bytes),
  ])));
  card.append(element('p', `${count(counts.granted_runs)} runs granted, ${count(counts.refusals)} refused, `
    + `${count(counts.lost_runs)} lost, ${count(counts.expired_runs)} not come back`));
  return card;
};

// What came before a fault asked for it, what left and how, and what stayed and why: since the start.
const told_of_pages = ({ fetched_pages: fetched, prefetch, evictions }) => {
  const used = prefetch.accuracy === null ? '' : `, ${percent(prefetch.accuracy)} of them used`;
  return [
    `fetched: ${count(fetched)} pages, ${count(prefetch.fetched_ahead_pages)} of them ahead${used}`,
    `evicted: ${count(evictions.written_pages)} written, ${count(evictions.clean_dropped_pages)} clean, `
      + `${count(evictions.zero_dropped_pages)} zero; kept in use ${count(evictions.kept_in_use_pages)}, `
      + `refused ${count(evictions.refused_pages)}`,
  ].map((line) => element('p', line, 'pages'));
};

// The daemon that moves pages between memory nodes.
const tiering = (row) => {
  const { fast, slow, source, link, managed_bytes: managed, cpu_pct, groups } = row.tier;
  const card = element('section', undefined, 'card');
  card.append(element('h2', `${row.name} (${row.pid}), from nodes ${fast} to ${slow} and back`));
  card.append(element('p', `${bytes(managed)} managed, telemetry from ${source.name}, CPU ${cpu_pct.toFixed(1)}% of a core; `
    + `slow memory answers in ${link.latency_ns.toFixed(0)} ns (fast memory ${link.local_latency_ns.toFixed(0)})`));
  const points = histories.get(key_of(row)) ?? [];
  const charts = element('div', undefined, 'charts');
  charts.append(chart('fast and slow memory', points, [['local', (p) => p.local], ['far', (p) => p.far]], bytes));
  const names = ['group', 'policy', 'processes', 'fast', 'at most', 'slow', 'promoted', 'demoted', 'state'];
  card.append(charts, tabled(names, groups.map((group) => [
    group.name, group.policy, String(group.processes.length), bytes(group.local_bytes), bytes(group.local_limit_bytes),
    bytes(group.far_bytes), count(group.promotions), count(group.demotions), group.ended ?? group.paused ?? 'moves pages',
  ])));
  return card;
};

const detailed = (row) => {
  const card = element('section', undefined, 'card');
  card.append(element('h2', `${row.name} (${row.pid}), ${row.fault_mode} mode`));
  const points = histories.get(key_of(row)) ?? [];
  const charts = element('div', undefined, 'charts');
  charts.append(
    chart('local and far', points, [['local', (p) => p.local], ['far', (p) => p.far]], bytes),
    chart('faults a second', points, [['local', (p) => p.faults]], count),
    chart('time lost', points, [['lost', (p) => p.lost]], percent),
  );
  card.append(charts, ...told_of_pages(row), ...memory_maps(row), stores(row));
  return card;
};

// Of a donor in a pool: what it holds, and what is promised beyond that.
const lent = ({ offered_bytes: offered, promised_bytes: promised, held_bytes: held }) => {
  const picture = drawn('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img' });
  const all = Math.max(offered ?? 0, held ?? 0, 1);
  const [x, beyond] = [100 * (held ?? 0) / all, 100 * Math.max((promised ?? 0) - (held ?? 0), 0) / all];
  picture.append(
    drawn('rect', { class: 'room', width: 100, height: 8 }), drawn('rect', { class: 'local', width: x, height: 8 }),
    drawn('rect', { class: 'far', x, width: beyond, height: 8 }),
  );
  const title = drawn('title', {});
  title.textContent = `${bytes(held)} held, ${bytes(promised)} promised of ${bytes(offered)}`;
  picture.append(title);
  return picture;
};

const known = (value, shown) => value === null ? '-' : shown(value);

const donors_of = (donors) => {
  const table = tabled(['donor', 'state', 'domain', 'held and promised', 'lends', 'promised', 'holds', 'free', 'runs'], []);
  for (const donor of donors) {
    const line = element('tr');
    const memory = element('td', undefined, 'memory');
    memory.append(lent(donor));
    const state = element('td', donor.state, ...(donor.state === 'up' ? [] : ['unwell']));
    line.append(element('td', donor.address), state, element('td', donor.domain ?? '-'), memory);
    const sizes = [donor.offered_bytes, donor.promised_bytes, donor.held_bytes, donor.free_bytes];
    line.append(...[...sizes.map(bytes), known(donor.runs, count)].map((cell) => element('td', cell)));
    table.append(line);
    if (donor.reason !== null) {
      const why = element('td', donor.reason, 'unwell');
      why.setAttribute('colspan', '9');
      const below = element('tr');
      below.append(why);
      table.append(below);
    }
  }
  return table;
};

const state_of = (run) => {
  if (run.unreachable_bytes > 0) { return 'waiting for donors'; }
  if (run.left_bytes > 0 && run.copied_bytes_per_s > 0) { return 'copying'; }
  return run.endangered_bytes > 0 ? 'in danger' : 'well';
};

// The runs of a pool: as they have registered themselves, or as its donors know them.
const runs_of = (pool) => pool.runs !== null
  ? tabled(['run', 'copies', 'stored', 'in the last resort', 'fewer copies', 'left to copy', 'copied/s', 'state'], pool.runs.map((run) => [
    `${run.host}:${run.pid}`, String(run.copies), bytes(run.stored_bytes), bytes(run.spilled_bytes), bytes(run.endangered_bytes),
    bytes(run.left_bytes), bytes(run.copied_bytes_per_s), state_of(run),
  ]))
  : tabled(['donor', 'run', 'promised', 'holds', 'state'], pool.donors.flatMap((donor) => (donor.each_run ?? []).map((run) => [
    donor.address, String(run.number), bytes(run.promised_bytes), bytes(run.held_bytes), run.is_lost ? 'lost' : 'connected',
  ])));

const pooled = (pool) => {
  const card = element('section', undefined, 'card', 'pool');
  card.append(element('h2', `Pool ${pool.pool}`));
  if (pool.failure !== null) { card.append(element('p', pool.failure, 'unwell')); return card; }
  if (pool.donors.length === 0) { card.append(element('p', 'asking its donors ...')); return card; }
  const sum = (key) => pool.donors.reduce((all, donor) => all + (donor[key] ?? 0), 0);
  const up = pool.donors.filter((donor) => donor.state === 'up').length;
  card.append(element('p', `${up} of ${pool.donors.length} donors are up; ${bytes(sum('offered_bytes'))} lent: `
    + `${bytes(sum('held_bytes'))} held, ${bytes(sum('promised_bytes'))} promised, ${bytes(sum('free_bytes'))} free`));
  card.append(donors_of(pool.donors), runs_of(pool));
  return card;
};

const note = (row) => {
  const key = key_of(row);
  const points = histories.get(key) ?? [];
  points.push(row.kind === 'donor' ? {
    local: row.local_bytes, far: row.donor.memory.promised_bytes,
    written: row.donor.rates?.written_bytes_per_s ?? 0, read: row.donor.rates?.read_bytes_per_s ?? 0,
  } : {
    local: row.local_bytes, far: row.far_bytes, faults: row.rates?.faults_per_s ?? 0, lost: row.rates?.lost_share ?? 0,
  });
  histories.set(key, points.slice(-KEPT_POINTS));
  return key;
};

const show = ({ rows, silent }) => {
  const runs = rows.filter((row) => row.kind === 'run');
  const donors = rows.filter((row) => row.kind === 'donor');
  const daemons = rows.filter((row) => row.kind === 'tier');
  const known = new Set([...runs, ...donors, ...daemons].map(note));
  for (const key of histories.keys()) { if (!known.has(key)) { histories.delete(key); } }
  document.querySelector('#list tbody').replaceChildren(...rows.map(listed));
  document.querySelector('#details').replaceChildren(...runs.map(detailed), ...donors.map(lending), ...daemons.map(tiering), ...pools.map(pooled));
  document.querySelector('#nothing').hidden = rows.length > 0 || pools.length > 0;
  document.querySelector('#list').hidden = rows.length === 0;
  const unheard = silent.length > 0 ? `; ${silent.length} do not answer` : '';
  const lending_here = donors.length > 0 ? `, ${donors.length} ${donors.length === 1 ? 'donor' : 'donors'}` : '';
  const tiered = daemons.length > 0 ? ', 1 tier daemon' : '';
  document.querySelector('#state').textContent = `${runs.length} ${runs.length === 1 ? 'run' : 'runs'}${lending_here}${tiered}${unheard}`;
};

const told = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) { throw new Error(answer.statusText); }
  return answer.json();
};

const ask = async () => {
  try {
    const [rows, maps, told_pools] = await Promise.all(['rows.json', 'heat.json', 'pool.json'].map(told));
    [heat, pools] = [maps, told_pools];
    show(rows);
  } catch (error) {
    document.querySelector('#state').textContent = `no answer (${error.message}): has 'spillway dashboard' ended?`;
  }
  setTimeout(ask, PERIOD_MS);
};

ask();
