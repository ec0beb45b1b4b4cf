"""A job on Spark in local mode with generated data; prints its seconds and figures of its result as JSON.

Everything that is drawn is a hash of its number, so that every run has the same data.
"""

import json
import sys
import time

from pyspark.sql import SparkSession, functions as F


def draw(seed, limit):
    """A number below `limit` that the row's id and the seed determine."""
    return F.pmod(F.xxhash64("id", F.lit(seed)), F.lit(limit))


def skewed(seed, limit):
    """The same, small ones more often: some items have many ratings, some pages many links."""
    share = draw(seed, 1_000_000) / 1_000_000.0
    return F.floor(share * share * limit)


def collaborative_filtering(spark, size):
    """Ratings of items by users, and what alternating least squares makes of them."""
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.recommendation import ALS

    # Everybody and everything has a taste, of which the rating is made.
    taste = F.pmod(F.xxhash64("user") + F.xxhash64("item"), F.lit(5))
    likes = F.pmod(F.xxhash64("user"), F.lit(3)) + F.pmod(F.xxhash64("item"), F.lit(2))
    ratings = (
        spark.range(size["ratings"], numPartitions=2)
        .select(
            draw(1, size["users"]).cast("int").alias("user"),
            skewed(2, size["items"]).cast("int").alias("item"),
        )
        .select("user", "item", (1 + 0.2 * taste + likes).cast("float").alias("rating"))
        .cache()
    )
    count = ratings.count()
    als = ALS(rank=10, maxIter=size["iterations"], seed=1, numUserBlocks=2, numItemBlocks=2)
    als.setUserCol("user").setItemCol("item").setRatingCol("rating")
    predictions = als.fit(ratings).transform(ratings)
    error = RegressionEvaluator(metricName="rmse", labelCol="rating").evaluate(predictions)
    return [float(count), error]


def page_rank(spark, size):
    """Ranks of linked pages: each hands its rank to those that it links to, again and again."""
    links = (
        spark.range(size["links"], numPartitions=2)
        .select(draw(1, size["pages"]).alias("source"), skewed(2, size["pages"]).alias("target"))
        .distinct()
    )
    degrees = links.groupBy("source").agg(F.count("*").alias("degree"))
    links = links.join(degrees, "source").cache()
    ranks = spark.range(size["pages"]).select(F.col("id").alias("page"), F.lit(1.0).alias("rank"))
    count = links.count()
    for _ in range(size["iterations"]):
        handed = (
            links.join(ranks, links.source == ranks.page)
            .groupBy("target")
            .agg(F.sum(F.col("rank") / F.col("degree")).alias("handed"))
        )
        before = ranks
        ranks = handed.select(F.col("target").alias("page"), (0.15 + 0.85 * F.col("handed")).alias("rank"))
        # Kept, and cut off from what it was made of.
        ranks = ranks.localCheckpoint()
        before.unpersist()
    total, most = ranks.agg(F.sum("rank"), F.max("rank")).first()
    return [float(count), total, most]


def main():
    job, size = sys.argv[1], json.loads(sys.argv[2])
    spark = SparkSession.builder.appName(job).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    started = time.monotonic()
    figures = {"als": collaborative_filtering, "pagerank": page_rank}[job](spark, size)
    seconds = time.monotonic() - started
    spark.stop()
    print(json.dumps({"seconds": seconds, "figures": figures}))


main()
