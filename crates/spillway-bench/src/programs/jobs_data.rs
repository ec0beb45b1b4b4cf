//! Jobs on data: numpy, scikit-learn, igraph, and a database in a Java machine.

use super::job::Job;
use super::jobs::{no_input, written};
use crate::whole::workload::Site;

/// Debian's Python, which has Debian's packages.
const PYTHON: &str = "/usr/bin/python3";
const NUMPY: &str = "install it: apt-get install python3-numpy";
/// Before numpy is loaded: as many threads on every machine.
const TWO_THREADS: &str =
    "import os\nos.environ['OPENBLAS_NUM_THREADS'] = os.environ['OMP_NUM_THREADS'] = '2'\n";

fn script(text: String) -> Vec<String> {
    vec!["-c".to_owned(), text]
}

pub(super) fn numpy_sort() -> Job {
    Job {
        name: "numpy_sort",
        about: "numpy: sort and argsort of random numbers, and the sorted values summed by blocks",
        program: PYTHON,
        remedy: NUMPY,
        input: no_input,
        arguments: |site, _| {
            let numbers = site.pick(3_000_000, 80_000_000);
            script(format!(
                "import numpy as n\na = n.random.default_rng(1).random({numbers})\ni = n.argsort(a)\n\
                 b = n.sort(a)\nassert (a[i] == b).all()\nprint(b[::1000].sum().hex(), i[::1000].sum())"
            ))
        },
        output: None,
    }
}

pub(super) fn numpy_fft() -> Job {
    Job {
        name: "numpy_fft",
        about: "numpy: a two-dimensional FFT, a filter, and back",
        program: PYTHON,
        remedy: NUMPY,
        input: no_input,
        arguments: |site, _| {
            let side = site.pick(1536, 6144);
            script(format!(
                "import numpy as n\na = n.random.default_rng(2).random(({side}, {side}))\n\
                 for _ in range(3):\n f = n.fft.rfft2(a)\n f[{side} // 4:-{side} // 4] *= 0.5\n \
                 a = n.fft.irfft2(f, a.shape)\nprint(a[::97, ::89].sum().hex())"
            ))
        },
        output: None,
    }
}

pub(super) fn numpy_matrix() -> Job {
    Job {
        name: "numpy_matrix",
        about: "numpy: products of dense matrices, 2 threads",
        program: PYTHON,
        remedy: NUMPY,
        input: no_input,
        arguments: |site, _| {
            let side = site.pick(1800, 9000);
            script(format!(
                "{TWO_THREADS}import numpy as n\nr = n.random.default_rng(5)\n\
                 a, b = r.random(({side}, {side})), r.random(({side}, {side}))\n\
                 c = a @ b\nc /= {side}\nd = b @ c\nprint('%.9e' % d[::97, ::89].sum())"
            ))
        },
        output: None,
    }
}

pub(super) fn sklearn() -> Job {
    Job {
        name: "sklearn",
        about: "scikit-learn: k-means in batches, principal components and a linear classifier on dense \
                rows of 64 features, 2 threads",
        program: PYTHON,
        remedy: "install it: apt-get install python3-sklearn",
        input: no_input,
        arguments: |site, _| {
            let rows = site.pick(35_000, 2_500_000);
            script(format!(
                "{TWO_THREADS}import numpy as n\nfrom sklearn.cluster import MiniBatchKMeans\n\
                 from sklearn.decomposition import PCA\nfrom sklearn.linear_model import SGDClassifier\n\
                 r = n.random.default_rng(3)\nc = r.random((16, 64), dtype='f4')\n\
                 y = r.integers(0, 16, {rows})\nx = c[y]\n\
                 x += 0.3 * r.standard_normal(x.shape, dtype='f4')\n\
                 k = MiniBatchKMeans(8, n_init=1, max_iter=3, batch_size=4096, random_state=1).fit(x)\n\
                 p = PCA(4, svd_solver='randomized', random_state=1).fit(x)\n\
                 s = SGDClassifier(max_iter=2, tol=None, random_state=1).fit(x, y)\n\
                 print(len(set(k.labels_)), '%.4f %.4f' % (s.score(x, y), p.explained_variance_[0]))"
            ))
        },
        output: None,
    }
}

pub(super) fn graph() -> Job {
    Job {
        name: "graph",
        about: "igraph: PageRank and breadth-first searches on a drawn graph in which few pages have most \
                links, 1 thread",
        program: PYTHON,
        remedy: "install it: apt-get install python3-igraph python3-numpy",
        input: no_input,
        arguments: |site, _| {
            let (pages, links) = site.pick((50_000, 350_000), (3_000_000, 24_000_000));
            script(format!(
                "import numpy as n, igraph\nr = n.random.default_rng(4)\n\
                 a = ({pages} * r.random({links}) ** 2).astype('i8')\nb = r.integers(0, {pages}, {links})\n\
                 g = igraph.Graph(n={pages}, edges=n.stack((a, b), 1), directed=True)\ndel a, b\n\
                 p = n.array(g.pagerank())\nprint('%.6e' % p.max(), int(p.argmax()))\n\
                 for s in (0, 1, 2):\n v, l, q = g.bfs(s, mode='all')\n \
                 print(len(v), len(l), sum(v[::1000]), sum(q[::1000]))"
            ))
        },
        output: None,
    }
}

/// Where Debian's package has the database.
const H2: &str = "/usr/share/java/h2.jar";

pub(super) fn java_h2() -> Job {
    Job {
        name: "java_h2",
        about: "H2, a database in a Java machine with a collected heap: a table in memory is filled, \
                indexed, joined, changed and grouped",
        program: "java",
        remedy: "install it: apt-get install default-jre-headless libh2-java",
        input: |site, directory| {
            let rows = site.pick(15_000, 2_000_000);
            written(&directory.join("queries.sql"), |file| {
                write!(
                    file,
                    "create memory table t as select x id, x * 7919 % 100003 k, 'value ' || x v\n\
                     from system_range(1, {rows});\n\
                     create index by_k on t(k);\n\
                     select count(*), sum(a.id % 1000 + length(b.v)) from t a join t b on b.k = a.id;\n\
                     update t set v = v || ' again' where id % 2 = 0;\n\
                     select sum(length(v)), max(v) from t;\n\
                     select k % 997 g, count(*), max(v) from t group by k % 997 order by 3 desc, 1 limit 5;\n"
                )
            })
        },
        arguments: |site: &Site<'_>, _| {
            let heap = site.pick(["-Xms64m", "-Xmx64m"], ["-Xms2g", "-Xmx2g"]);
            let rest = ["-XX:+UseG1GC", "-cp", H2, "org.h2.tools.RunScript", "-url", "jdbc:h2:mem:"];
            let script = ["-script", "queries.sql", "-showResults"];
            heap.iter().chain(&rest).chain(&script).map(|&argument| argument.to_owned()).collect()
        },
        output: None,
    }
}
