"""The metrics of a daemon, as a parser of OpenMetrics sees them."""
import subprocess

from lib import expect, paths


class Metrics:
    """Samples of one text, as a parser sees them: {name: {labels: value}}."""

    def __init__(self, text):
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
        self.families = {}
        self.samples = {}
        for family in text_string_to_metric_families(text):
            expect.holds(family.name not in self.families, f'{family.name} came twice')
            self.families[family.name] = family
            for sample in family.samples:
                labels = frozenset(sample.labels.items())
                values = self.samples.setdefault(sample.name, {})
                expect.holds(labels not in values, f'{sample} came twice')
                values[labels] = sample.value

    def get(self, name, **labels):
        return self.samples['glide_rdmad_' + name].get(frozenset(labels.items()))

    def total(self, name):
        return sum(self.samples['glide_rdmad_' + name].values())


def text_of(daemon):
    done = subprocess.run([paths.built('GRD_CTL'), 'metrics', '--admin-socket', daemon.admin_path], check=False, text=True,
                          capture_output=True)
    expect.equal((done.returncode, done.stderr), (0, ''))
    return done.stdout


def look(daemon):
    return Metrics(text_of(daemon))
