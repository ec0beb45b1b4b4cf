// Asks for what runs once a second, and shows it: all of it, or what was chosen in detail. Names come from
// programs: they are set as text, never as markup.
'use strict';

const PERIOD_MS = 1000;
const KEPT_POINTS = 300; // five minutes
const SVG = 'http://www.w3.org/2000/svg';
const PRESSED_MS = 2000; // after so long a button that is held down holds up nothing
const histories = new Map();
// What tables of a kind are sorted by: a column, and whether for the first or the second time.
const sorts = new Map();
let last = { rows: [], silent: [] };
let heat = [];
let pools = [];
let pressed_at = -Infinity;

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

const known = (value, shown) => value === null ? '-' : shown(value);

// Of a table: what a cell shows, and by what its column is sorted.
const cell = (content, value = content, ...classes) => ({ content, value, classes });
const size = (value, ...classes) => cell(bytes(value), value, ...classes);
const amount = (value, ...classes) => cell(known(value, count), value, ...classes);
// Cells in a line, with lines that stay below it.
const lined = (cells, below = [], ...classes) => ({ cells, below, classes });

const drawn_line = ({ cells, below, classes }) => {
  const line = element('tr', undefined, ...classes);
  for (const { content, classes: kinds } of cells) {
    const made = element('td', undefined, ...kinds);
    made.append(content);
    line.append(made);
  }
  return [line, ...below];
};

// The first click puts the greatest number first, or the first letter; the second turns that round.
const direction = ({ column, turn }, lines) => {
  const is_text = lines.some((line) => typeof line.cells[column].value === 'string');
  return is_text === (turn === 1) ? 1 : -1;
};

// What has no value comes last either way.
const sorted = (kind, lines) => {
  const by = sorts.get(kind);
  if (by === undefined) { return lines; }
  const way = direction(by, lines);
  const order = (a, b) => typeof a === 'string' ? a.localeCompare(b) : a - b;
  return [...lines].sort((one, other) => {
    const [a, b] = [one, other].map((line) => line.cells[by.column].value);
    return a === null || b === null ? (a === null) - (b === null) : way * order(a, b);
  });
};

const by_a_click = (kind, column) => {
  const { column: before, turn } = sorts.get(kind) ?? {};
  if (before === column && turn === 2) { sorts.delete(kind); } else {
    sorts.set(kind, { column, turn: before === column ? 2 : 1 });
  }
  show();
};

// The heading of a column, which sorts by it.
const sorter = (kind, owner, column, name) => {
  const button = element('button', name);
  button.type = 'button';
  button.id = `sort-${kind}-${owner}-${column}`;
  button.addEventListener('click', () => by_a_click(kind, column));
  return button;
};

const mark_sorted = (kind, headings, lines) => headings.forEach((heading, column) => {
  const by = sorts.get(kind);
  if (by?.column === column && lines.length > 0) {
    heading.setAttribute('aria-sort', direction(by, lines) > 0 ? 'ascending' : 'descending');
  } else { heading.removeAttribute('aria-sort'); }
});

// Tables of one kind are sorted alike; `owner` tells them apart.
const tabled = (kind, owner, names, lines) => {
  const table = element('table');
  const head = element('tr');
  const headings = names.map((name, column) => {
    const heading = element('th');
    heading.append(sorter(kind, owner, column, name));
    return heading;
  });
  mark_sorted(kind, headings, lines);
  head.append(...headings);
  table.append(head, ...sorted(kind, lines).flatMap(drawn_line));
  return table;
};

// Whose the row is: of a process with its number.
const key_of = (row) => `${row.uid}/${row.supervisor_pid}/${row.process_pid ?? ''}`;
const chosen_key = () => new URLSearchParams(location.hash.slice(1)).get('show');

const listed = (row, below) => {
  const name = element('a', row.name);
  name.href = `#show=${key_of(row)}`;
  name.id = `show-${key_of(row)}`;
  if (key_of(row) === chosen_key()) { name.setAttribute('aria-current', 'true'); }
  const donor = row.kind === 'donor';
  const rates = donor ? row.donor.rates : row.rates;
  const values = donor
    ? [null, null, null, null, rates?.written_bytes_per_s, rates?.read_bytes_per_s]
    : ['faults_per_s', 'fault_p50_us', 'fault_p99_us', 'lost_share', 'fetched_bytes_per_s', 'written_bytes_per_s']
      .map((rate) => rates?.[rate]);
  const far_bytes = donor ? null : row.far_bytes;
  return lined([
    cell(name, row.name), cell(String(row.pid), row.pid), cell(bar(row), row.local_bytes + (far_bytes ?? 0), 'memory'),
    ...[row.local_bytes, row.local_limit_bytes, far_bytes].map((value) => size(value, 'number')),
    ...rates_of(row).map((text, at) => cell(text, values[at] ?? null, 'number')),
  ], below, row.kind);
};

// Each run with its processes below it, wherever the run stands.
const list = (rows) => {
  const processes = (run) => rows.filter((row) => row.kind === 'process' && key_of({ ...row, process_pid: null }) === key_of(run));
  const lines = rows.filter((row) => row.kind !== 'process').map((row) => {
    const below = row.kind === 'run' ? sorted('list', processes(row).map((process) => listed(process, []))) : [];
    return listed(row, below.flatMap(drawn_line));
  });
  mark_sorted('list', [...document.querySelectorAll('#list th')], lines);
  return sorted('list', lines).flatMap(drawn_line);
};

const swatch = (name) => {
  const made = drawn('svg', { class: 'swatch', viewBox: '0 0 1 1', preserveAspectRatio: 'none' });
  made.append(drawn('rect', { class: name, width: 1, height: 1 }));
  return made;
};

// Lines of one chart: a class, a value for each point, and where there are several a name.
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
  const words = element('figcaption', `${caption}, at most ${shown(most)}`);
  for (const [name, , what] of lines) { if (what !== undefined) { words.append(' ', swatch(name), ` ${what}`); } }
  figure.append(words, picture);
  return figure;
};

const memory_chart = (points) => chart(
  'memory', points, [['local', (p) => p.local, 'local'], ['far', (p) => p.far, 'far']], bytes,
);
const traffic_chart = (points) => chart(
  'traffic a second', points, [['local', (p) => p.fetched, 'fetched'], ['far', (p) => p.written, 'written']], bytes,
);

// How many faults took how long since the start. Not in proportion but by powers of ten, so that the few
// that are slow are seen.
const histogram = ({ count: all, p50_us, p99_us, max_us, octaves }) => {
  if (octaves.length === 0) { return []; }
  const width = 100 / octaves.length;
  const most = Math.max(...octaves.map(([, faults]) => faults), 1);
  const picture = drawn('svg', { class: 'chart latency', viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img' });
  octaves.forEach(([bound_ns, faults], at) => {
    const height = 96 * Math.log(faults + 1) / Math.log(most + 1);
    const bar_of = drawn('rect', { class: 'local', x: (at + 0.06) * width, y: 100 - height, width: 0.88 * width, height });
    const title = drawn('title', {});
    title.textContent = `below ${micros(bound_ns / 1e3)}: ${count(faults)} faults`;
    bar_of.append(title);
    picture.append(bar_of);
  });
  const bounds = element('div', undefined, 'times');
  const marked = [...new Set([0, Math.floor((octaves.length - 1) / 2), octaves.length - 1])];
  bounds.append(...marked.map((at) => element('span', `below ${micros(octaves[at][0] / 1e3)}`)));
  const figure = element('figure');
  figure.append(element('figcaption', `how long ${count(all)} faults took since the start, bars by powers of ten; `
    + `p50 ${micros(p50_us)}, p99 ${micros(p99_us)}, longest ${micros(max_us)}`), picture, bounds);
  return [figure];
};

const ago = (s) => s < 59.5 ? `${s.toFixed(0)} s ago` : `${(s / 60).toFixed(s < 570 ? 1 : 0)} min ago`;

const legend = (kinds) => {
  const list = element('ul', undefined, 'legend');
  for (const [name, held] of kinds) {
    const item = element('li');
    item.append(swatch(`heat-${name}`), ` ${name} ${bytes(held)}`);
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

const memory_maps = (row) => heat.filter((map) => map.uid === row.uid && map.supervisor_pid === row.supervisor_pid
  && (row.kind === 'run' || map.process_pid === row.process_pid)).map(memory_map);

const stores = (row) => tabled(
  'stores', key_of(row), ['store', 'health', 'holds', 'takes', 'compressed', 'in/s', 'out/s'], row.stores.map((store) => lined([
    cell(store.uri), cell(store.health, store.health, ...(store.health === 'ok' ? [] : ['unwell'])),
    size(store.used_bytes), size(store.stored_bytes),
    cell(known(store.compression_ratio, (ratio) => `${ratio.toFixed(1)}:1`), store.compression_ratio),
    size(store.fetched_bytes_per_s), size(store.written_bytes_per_s),
  ])),
);

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
    chart('memory', points, [['local', (p) => p.local, 'held'], ['far', (p) => p.far, 'promised']], bytes),
    chart('traffic a second', points, [['local', (p) => p.written, 'written'], ['far', (p) => p.read, 'read']], bytes),
  );
  const names = ['client', 'connections', 'exports', 'promised', 'held'];
  card.append(charts, tabled('clients', key_of(row), names, clients.map((client) => lined([
    cell(client.client), amount(client.connections), amount(client.exports), size(client.promised_bytes), size(client.held_bytes),
  ]))));
  card.append(element('p', `${count(counts.granted_runs)} runs granted, ${count(counts.refusals)} refused, `
    + `${count(counts.lost_runs)} lost, ${count(counts.expired_runs)} not come back`));
  return card;
};

// What faults needed, what came before a fault asked for it; what left and how, and what stayed and why:
// since the start.
const told_of_pages = ({ faults, fault_latency: latency, fetched_pages: fetched, prefetch, evictions }) => {
  const used = prefetch.accuracy === null ? '' : `, ${percent(prefetch.accuracy)} of them used`;
  const left = evictions === undefined ? [] : [
    `evicted: ${count(evictions.written_pages)} written, ${count(evictions.clean_dropped_pages)} clean, `
      + `${count(evictions.zero_dropped_pages)} zero; kept in use ${count(evictions.kept_in_use_pages)}, `
      + `refused ${count(evictions.refused_pages)}`,
  ];
  return [
    `faults: ${count(faults.fetch)} fetched, ${count(faults.first_touch)} first touch, `
      + `${count(faults.inactive + faults.writeback + faults.other)} others, ${count(faults.refused)} refused; `
      + `threads waited ${micros(latency.total_us)} together`,
    `fetched: ${count(fetched)} pages, ${count(prefetch.fetched_ahead_pages)} of them ahead${used}`,
    ...left,
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
  charts.append(chart('memory', points, [['local', (p) => p.local, 'fast'], ['far', (p) => p.far, 'slow']], bytes));
  const names = ['group', 'policy', 'processes', 'fast', 'at most', 'slow', 'promoted', 'demoted', 'state'];
  card.append(charts, tabled('groups', key_of(row), names, groups.map((group) => lined([
    cell(group.name), cell(group.policy), amount(group.processes.length), size(group.local_bytes), size(group.local_limit_bytes),
    size(group.far_bytes), amount(group.promotions), amount(group.demotions), cell(group.ended ?? group.paused ?? 'moves pages'),
  ]))));
  return card;
};

const detailed = (row) => {
  const card = element('section', undefined, 'card');
  card.append(element('h2', `${row.name} (${row.pid}), ${row.fault_mode} mode`));
  const points = histories.get(key_of(row)) ?? [];
  const charts = element('div', undefined, 'charts');
  charts.append(
    memory_chart(points),
    chart('faults a second', points, [['local', (p) => p.faults]], count),
    chart('time lost', points, [['lost', (p) => p.lost]], percent),
    traffic_chart(points),
    ...histogram(row.fault_latency),
  );
  card.append(charts, ...told_of_pages(row), ...memory_maps(row), ...(row.kind === 'run' ? [stores(row)] : []));
  return card;
};

const carded = (row) => ({ donor: lending, tier: tiering }[row.kind] ?? detailed)(row);

// What was chosen alone, and the way back.
const in_detail = (key, rows) => {
  const way_back = element('p');
  const link = element('a', 'show all');
  link.href = '#';
  link.id = 'show-all';
  way_back.append(link);
  const row = rows.find((one) => key_of(one) === key);
  return [way_back, row === undefined ? element('p', 'It has ended.') : carded(row)];
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

const donors_of = (owner, donors) => {
  const names = ['donor', 'state', 'domain', 'held and promised', 'lends', 'promised', 'holds', 'free', 'runs'];
  return tabled('donors', owner, names, donors.map((donor) => {
    const below = [];
    if (donor.reason !== null) {
      const why = element('td', donor.reason, 'unwell');
      why.setAttribute('colspan', '9');
      below.push(element('tr'));
      below[0].append(why);
    }
    return lined([
      cell(donor.address), cell(donor.state, donor.state, ...(donor.state === 'up' ? [] : ['unwell'])),
      cell(donor.domain ?? '-', donor.domain), cell(lent(donor), donor.held_bytes, 'memory'),
      size(donor.offered_bytes), size(donor.promised_bytes), size(donor.held_bytes), size(donor.free_bytes), amount(donor.runs),
    ], below);
  }));
};

const state_of = (run) => {
  if (run.unreachable_bytes > 0) { return 'waiting for donors'; }
  if (run.left_bytes > 0 && run.copied_bytes_per_s > 0) { return 'copying'; }
  return run.endangered_bytes > 0 ? 'in danger' : 'well';
};

// The runs of a pool: as they have registered themselves, or as its donors know them.
const runs_of = (pool) => pool.runs !== null
  ? tabled('runs', pool.pool, ['run', 'copies', 'stored', 'in the last resort', 'fewer copies', 'left to copy', 'copied/s', 'state'],
    pool.runs.map((run) => lined([
      cell(`${run.host}:${run.pid}`), cell(String(run.copies), run.copies), size(run.stored_bytes), size(run.spilled_bytes),
      size(run.endangered_bytes), size(run.left_bytes), size(run.copied_bytes_per_s), cell(state_of(run)),
    ])))
  : tabled('held', pool.pool, ['donor', 'run', 'promised', 'holds', 'state'],
    pool.donors.flatMap((donor) => (donor.each_run ?? []).map((run) => lined([
      cell(donor.address), cell(String(run.number), run.number), size(run.promised_bytes), size(run.held_bytes),
      cell(run.is_lost ? 'lost' : 'connected'),
    ]))));

const pooled = (pool) => {
  const card = element('section', undefined, 'card', 'pool');
  card.append(element('h2', `Pool ${pool.pool}`));
  if (pool.failure !== null) { card.append(element('p', pool.failure, 'unwell')); return card; }
  if (pool.donors.length === 0) { card.append(element('p', 'asking its donors ...')); return card; }
  const sum = (key) => pool.donors.reduce((all, donor) => all + (donor[key] ?? 0), 0);
  const up = pool.donors.filter((donor) => donor.state === 'up').length;
  card.append(element('p', `${up} of ${pool.donors.length} donors are up; ${bytes(sum('offered_bytes'))} lent: `
    + `${bytes(sum('held_bytes'))} held, ${bytes(sum('promised_bytes'))} promised, ${bytes(sum('free_bytes'))} free`));
  card.append(donors_of(pool.pool, pool.donors), runs_of(pool));
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
    fetched: row.rates?.fetched_bytes_per_s ?? 0, written: row.rates?.written_bytes_per_s ?? 0,
  });
  histories.set(key, points.slice(-KEPT_POINTS));
  return key;
};

// Notes what was told for the charts, and forgets what is not there any more.
const take = (told_rows) => {
  last = told_rows;
  const noted = new Set(last.rows.map(note));
  for (const key of histories.keys()) { if (!noted.has(key)) { histories.delete(key); } }
};

const show = () => {
  const { rows, silent } = last;
  const of_kind = (kind) => rows.filter((row) => row.kind === kind);
  const [runs, donors, daemons] = ['run', 'donor', 'tier'].map(of_kind);
  const focused = document.activeElement?.id;
  document.querySelector('#list tbody').replaceChildren(...list(rows));
  const key = chosen_key();
  document.querySelector('#details').replaceChildren(
    ...(key !== null ? in_detail(key, rows) : [...[...runs, ...donors, ...daemons].map(carded), ...pools.map(pooled)]),
  );
  // What was replaced keeps the keyboard.
  if (focused) { document.getElementById(focused)?.focus({ preventScroll: true }); }
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
    const [told_rows, maps, told_pools] = await Promise.all(['rows.json', 'heat.json', 'pool.json'].map(told));
    [heat, pools] = [maps, told_pools];
    take(told_rows);
    // A button that is replaced while it is pressed is not clicked.
    if (performance.now() - pressed_at > PRESSED_MS) { show(); }
  } catch (error) {
    document.querySelector('#state').textContent = `no answer (${error.message}): has 'spillway dashboard' ended?`;
  }
  setTimeout(ask, PERIOD_MS);
};

document.querySelectorAll('#list th').forEach((heading, column) => {
  heading.replaceChildren(sorter('list', '', column, heading.textContent));
});
addEventListener('hashchange', show);
addEventListener('pointerdown', () => { pressed_at = performance.now(); });
for (const end of ['pointerup', 'pointercancel']) { addEventListener(end, () => { pressed_at = -Infinity; }); }
ask();
